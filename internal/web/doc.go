// Package web is the page of "pawl web": who holds which lock, and who waits, as it changes.
//
//	server, engines --List--> Source --publication--> board --events--> stream, one for each page
//	                             |                      |
//	                             +--> history           +--> rows by id, for the view of one lock
//
// The Source looks at all locks once in a period, as long as somebody has the page open. What differs
// from the look before is a publication: the rows that changed, the ids of rows that went, and the
// figures. The board numbers publications, and keeps the state after the last one and a bounded log.
// A stream is a cursor in that log. A page that reconnects continues behind the last number it has
// seen; one whose number is not in the log any more, because it is new or slow, gets all rows. So no
// change is lost, and no page costs memory.
//
// Names of locks, and what engines say of themselves, are texts of strangers. They leave this package
// escaped and shortened (text.go), in JSON; the page shows them as text content only.
//
// The files: source.go, row.go, figures.go, board.go, history.go: what was seen. stream.go, lock.go, unlock.go: what is
// answered. guard.go: who is answered. handler.go puts them together. assets has the page, and uPlot
// 1.6.32 from the npm registry with its licence.
package web
