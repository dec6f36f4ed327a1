// Package redisadmin talks to the servers of a benchmark beside the measuring: it asks for what
// they count, and takes locks as another process would. It knows no scenario and no result,
// and makes no engine.
//
// Once it is connected nothing here runs unasked, so that it disturbs no figure.
package redisadmin
