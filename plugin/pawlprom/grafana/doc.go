// Package grafana has a dashboard and alert rules for the metrics of pawlprom, as files: dashboard.json for
// Grafana, and alerts.yml for Prometheus. It has no code; its tests parse each expression with the
// parser of Prometheus, and look for metrics and labels that pawlprom does not have.
package grafana
