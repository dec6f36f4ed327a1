// Package lint holds the rules of this repository that no general linter knows,
// as tests: which package may import which, what lies at the top level, and what
// source files must not contain. Each rule says why; an exception is listed
// beside the rule with its reason.
//
// golangci-lint is not used: it has 180 modules to build, for what staticcheck and this
// package cover.
package lint
