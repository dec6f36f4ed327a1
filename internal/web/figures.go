package web

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/lockjson"
)

// maxEngines is how many engines are shown.
const maxEngines = 200

// status is the figures of a look.
type status struct {
	At        int64         `json:"at"` // Unix time in ms
	Pattern   string        `json:"pattern"`
	Locks     int           `json:"locks"`
	Waiting   int           `json:"waiting"`
	Changes   int           `json:"changes"`
	TookMS    int64         `json:"took_ms"`
	EveryMS   int64         `json:"every_ms"`
	Truncated bool          `json:"truncated,omitempty"`
	Silent    int           `json:"silent,omitempty"`
	NotAsked  string        `json:"not_asked,omitempty"`
	Error     string        `json:"error,omitempty"`
	Engines   []*engineJSON `json:"engines"`
	More      int           `json:"more_engines,omitempty"`
}

// add adds the engines: those with the most locks, if they are too many.
func (st *status) add(engines map[string]*engineJSON) {
	st.Engines = slices.AppendSeq([]*engineJSON{}, maps.Values(engines)) // not null in JSON
	slices.SortFunc(st.Engines, func(a, b *engineJSON) int {
		return cmp.Or(cmp.Compare(b.Held+b.Waiting, a.Held+a.Waiting), cmp.Compare(a.ID, b.ID))
	})
	st.More = max(len(st.Engines)-maxEngines, 0)
	st.Engines = st.Engines[:len(st.Engines)-st.More]
}

// count adds a lock to the figures of its engines.
func count(engines map[string]*engineJSON, l *engine.LockInfo) {
	of := func(e *engine.EngineInfo) *engineJSON {
		j := engines[e.ID]
		if j == nil {
			j = &engineJSON{Engine: lockjson.EngineOf(e, viewed)}
			engines[e.ID] = j
		}
		return j
	}
	for _, h := range l.Holders {
		if h.Engine != nil && h.Engine.Answered {
			of(h.Engine).Held++
		}
	}
	for _, e := range l.Engines { // of a list: those that wait
		of(e).Waiting++
	}
}
