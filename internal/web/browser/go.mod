module github.com/pawl-lock/pawl/internal/web/browser

go 1.26.0

replace github.com/pawl-lock/pawl => ../../..

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/pawl-lock/pawl v0.0.0-00010101000000-000000000000
)
