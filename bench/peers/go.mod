module github.com/pawl-lock/pawl/bench/peers

go 1.26.0

replace github.com/pawl-lock/pawl => ../..

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/pawl-lock/pawl v0.0.0-00010101000000-000000000000
	github.com/redis/rueidis v1.0.79
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.49.0 // indirect
