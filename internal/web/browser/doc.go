// Package browser tests the page of "pawl web" in a headless Chromium. It is a module of its own, since only
// this test needs a driver of browsers. Without a Chromium on PATH it skips, and says so.
package browser
