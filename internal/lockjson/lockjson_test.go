package lockjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

// every is a text with each character up to U+00A0, and some others.
var every = func() string {
	var s strings.Builder
	for r := range rune(0xa1) {
		s.WriteRune(r)
	}
	return s.String() + "é日本🔒\u2028\"\\"
}()

// A terminal obeys U+009B as it obeys ESC and a bracket.
func TestLine_ControlCharacters_AreEscaped(t *testing.T) {
	t.Parallel()
	lock := lockjson.Of(&engine.LockInfo{Name: every, Mode: every, Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: every}}}}, lockjson.Plain)
	for what, encode := range map[string]func(any) ([]byte, error){"line": lockjson.Line, "document": lockjson.Document} {
		text, err := encode(lock)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range string(text) {
			if r < ' ' && r != '\n' || r >= 0x7f && r <= 0x9f {
				t.Errorf("%s: %U is there", what, r)
			}
		}
		if what == "line" && bytes.Count(text, []byte("\n")) != 1 {
			t.Errorf("%q is no line", text)
		}
		var again lockjson.Lock
		if err := json.Unmarshal(text, &again); err != nil || again.Name != every || again.Mode != every || again.Holders[0].ID != every {
			t.Errorf("%s: %q, %v", what, text, err)
		}
	}
}

func TestOf_NamesThatAreNotUTF8_AreThereInBase64(t *testing.T) {
	t.Parallel()
	text, err := lockjson.Line(lockjson.Of(&engine.LockInfo{Name: "\xff\xfe", Holders: []engine.HolderInfo{{Holder: engine.Holder{ID: "\xfd"}}}}, lockjson.Plain))
	if err != nil || !bytes.Contains(text, []byte(`"name_base64":"//4="`)) || !bytes.Contains(text, []byte(`"id_base64":"/Q=="`)) {
		t.Errorf("%s, %v", text, err)
	}
}
