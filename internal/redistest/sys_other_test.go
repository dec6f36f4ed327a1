//go:build !linux

package redistest_test

const parentDeathSignal = false

func alive(int) bool { return false }
