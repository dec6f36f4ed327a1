package lockerr

import "testing"

func TestParseOwner_Texts_ComeBackOrAreUnknown(t *testing.T) {
	t.Parallel()
	for text, known := range map[string]bool{
		"0f8fad5b-d9cb-469f-a165-70867728950e:42":                   true,
		"0f8fad5b-d9cb-469f-a165-70867728950e:0":                    true,
		"0f8fad5b-d9cb-469f-a165-70867728950e:-9223372036854775808": true,
		"0f8fad5b-d9cb-469f-a165-70867728950e:9223372036854775807":  true,
		"0f8fad5b-d9cb-469f-a165-70867728950e:9223372036854775808":  false,
		"0F8FAD5B-D9CB-469F-A165-70867728950E:42":                   false,
		"0f8fad5b-d9cb-469f-a165-70867728950e:042":                  false,
		"0f8fad5b-d9cb-469f-a165-70867728950e:":                     false,
		"0f8fad5b-d9cb-469f-a165-70867728950e":                      false,
		"0f8fad5bxd9cb-469f-a165-70867728950e:1":                    false,
		"0f8fad5b-d9cb-469f-a165-7086772895:1":                      false,
		"00000000-0000-0000-0000-000000000000:0":                    false,
		"someone:1":                                                 false,
		"":                                                          false,
	} {
		got := ParseOwner([]byte(text)).String()
		if known && got != text || !known && got != "" {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestParseOwner_CostsNoAllocation(t *testing.T) {
	text := []byte("0f8fad5b-d9cb-469f-a165-70867728950e:9223372036854775807")
	if n := testing.AllocsPerRun(100, func() { ParseOwner(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
