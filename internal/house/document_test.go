package house

import "testing"

func TestItemLines_Item_EndsWithTheNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       int // 0: an error
	}{
		{"one line", "- **X** is.\n- **Y** is.\n", 1},
		{"several", "- **W** is.\n- **X** is\n  and is.\n\n  | a |\n  |---|\n- **Y** is\n  so.\n", 4},
		{"the last", "- **X** is\n  and is.\n\n## Next\n\n  code\n", 2},
		{"the end", "- **X** is\n  and is.", 2},
		{"none", "- **Y** is, as **X** is.\n", 0},
	} {
		got, err := itemLines(c.text, "**X**")
		if got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: %d, %v, want %d", c.name, got, err, c.want)
		}
	}
}
