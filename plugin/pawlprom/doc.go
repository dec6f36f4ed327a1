// Package pawlprom shows what the locks of an engine do as metrics of Prometheus:
//
//	cfg.Observer = pawlprom.New(prometheus.DefaultRegisterer)
//
// One Observer serves any number of engines; their figures are added up. New with a Registerer that
// has one already returns that.
//
// These are about what callers do: a lock of Multi, LockMany or RedLock counts once, and its parts do not count. kind is
// that of engine.Acquisition.
//
//	pawl_acquire_duration_seconds{kind,outcome}  histogram: from the call to the result
//	pawl_hold_duration_seconds{kind,end}         histogram: from the grant to the end; end is
//	                                             "released", or why it was lost
//	pawl_release_duration_seconds{kind,result}   histogram: until Unlock has its answer; "ok" or "error"
//	pawl_lost_total{kind,reason}                 counter
//
// These are about the engines:
//
//	pawl_held, pawl_waiting                      gauges of engine.Stats: locks that are held, and acquisitions
//	                                             without a result
//	pawl_oldest_hold_seconds                     gauge: how old the oldest hold is; 0 without one
//	pawl_renewal_lag_seconds                     histogram: how late renewals are sent
//	pawl_renewal_duration_seconds{result}        histogram: until they are answered; "ok" or "error"
//	pawl_connections_lost_total{role}            counter
//	pawl_handed_over_total, pawl_reconnects_total, pawl_redirects_total, pawl_commands_total, pawl_compensations_total,
//	pawl_in_doubt_total, pawl_unknown_outcomes_total, pawl_not_acked_total, pawl_leaked_total,
//	pawl_events_dropped_total                    counters of engine.Stats
//	pawl_servers_connected, pawl_servers_down    gauges
//
// A series of a metric with a label, or of pawl_renewal_lag_seconds, begins with its first event. The name of a lock is no
// label unless NameLabel makes one of it. The histograms have classic buckets, from 100 µs to a
// minute. Events that were dropped (pawl_events_dropped_total) are missing in them; the gauges are right anyway.
package pawlprom
