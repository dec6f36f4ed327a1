// Package slot says which slot of a cluster a key has.
package slot
