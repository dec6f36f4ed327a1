// Package lint holds the rules of this repository that no general linter knows,
// as tests: which package may import which, what lies at the top level, and what
// source files must not contain. Each rule says why; an exception is listed
// beside the rule with its reason.
package lint
