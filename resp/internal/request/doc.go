// Package request is one command and what becomes of it: the [Request] that a caller
// submits, the [Reply] that it is completed with, and the classes of failure between
// them. It is the vocabulary of every layer of resp, and sends nothing itself.
package request
