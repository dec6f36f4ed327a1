package inspect

// Match reports whether a name matches a pattern as the server understands them: * is any text, ? one
// byte, [a-z] and [^a-z] one of some bytes, and a backslash takes the next byte as it is. It takes
// no longer than the product of the two lengths.
func Match(pattern, name string) bool {
	p, n := 0, 0
	starP, starN := -1, 0 // where to go back to: the latest *, and what it has matched so far
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			starP, starN = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if next, ok := matchOne(pattern, p, name[n]); ok {
				p, n = next, n+1
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starN++
		p, n = starP+1, starN
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches a byte with what stands at p, and returns what is behind that.
func matchOne(pattern string, p int, c byte) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '\\':
		if p+1 < len(pattern) {
			return p + 2, pattern[p+1] == c
		}
	case '[':
		return matchClass(pattern, p+1, c)
	}
	return p + 1, pattern[p] == c
}

// matchClass matches a byte with a class, which begins at p. One that nothing closes ends with the pattern.
func matchClass(pattern string, p int, c byte) (next int, ok bool) {
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	found := false
	for p < len(pattern) && pattern[p] != ']' {
		if pattern[p] == '\\' && p+1 < len(pattern) {
			p++
			found = found || pattern[p] == c
			p++
			continue
		}
		if p+2 < len(pattern) && pattern[p+1] == '-' {
			low, high := pattern[p], pattern[p+2]
			found = found || min(low, high) <= c && c <= max(low, high)
			p += 3
			continue
		}
		found = found || pattern[p] == c
		p++
	}
	return min(p+1, len(pattern)), found != not
}
