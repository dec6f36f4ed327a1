package grafana

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/pawl-lock/pawl/plugin/pawlprom"
)

// exported are the metrics of pawlprom with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	o := pawlprom.New(prometheus.NewRegistry())
	descs := make(chan *prometheus.Desc, 100)
	o.Describe(descs)
	close(descs)
	text := regexp.MustCompile(`fqName: "([^"]+)".* variableLabels: \{([^}]*)\}`)
	all := make(map[string][]string)
	for d := range descs {
		m := text.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a description of another form: %v", d)
		}
		all[m[1]] = strings.Split(m[2], ",")
	}
	return all
}

// wrong is why an expression does not fit to the metrics, "" if it does.
func wrong(metrics map[string][]string, expr string) string {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return err.Error()
	}
	var why string
	known := make(map[string]bool) // labels of what is selected
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := strings.TrimSuffix(strings.TrimSuffix(v.Name, "_bucket"), "_count")
		own, ok := metrics[name]
		if !ok {
			why = "there is no metric " + v.Name
			return nil
		}
		if histogram := strings.HasSuffix(name, "_seconds") && name != "pawl_oldest_hold_seconds"; histogram != (name != v.Name) {
			why = v.Name + " is, or is not, a histogram"
		}
		for _, l := range own {
			known[l] = true
		}
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel && m.Name != "job" && !slices.Contains(own, m.Name) {
				why = fmt.Sprintf("%s has no label %s", v.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if by, ok := node.(*parser.AggregateExpr); ok {
			for _, l := range by.Grouping {
				if l != "le" && !known[l] {
					why = "nothing has the label " + l
				}
			}
		}
		return nil
	})
	return why
}

// shows are the metrics of an expression's text.
func shows(seen map[string]bool, metrics map[string][]string, expr string) {
	for name := range metrics {
		if strings.Contains(expr, name) {
			seen[name] = true
		}
	}
}

func TestDashboard_Expressions_FitTheMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	metrics, seen := exported(t), make(map[string]bool)
	for _, p := range d.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$kind", ".*").Replace(target.Expr)
			if why := wrong(metrics, expr); why != "" {
				t.Errorf("%s: %s\n%s", p.Title, why, expr)
			}
			shows(seen, metrics, expr)
		}
	}
	for name := range metrics {
		if !seen[name] {
			t.Errorf("no panel shows %s: those that are shown are %v", name, slices.Sorted(maps.Keys(seen)))
		}
	}
}

func TestAlerts_Rules_FitTheMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	metrics, n := exported(t), 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			n++
			if why := wrong(metrics, r.Expr); why != "" {
				t.Errorf("%s: %s", r.Alert, why)
			}
			if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary or severity", r.Alert)
			}
		}
	}
	if n == 0 {
		t.Error("there are no rules")
	}
}

// The checks find what they are for.
func TestWrong_MistakesInExpressions_AreFound(t *testing.T) {
	t.Parallel()
	metrics := exported(t)
	for _, expr := range []string{
		"sum(pawl_hold)", `pawl_lost_total{color="red"}`, "sum by (color) (pawl_lost_total)", "sum(", "rate(pawl_hold_duration_seconds[5m])", "pawl_held_count",
	} {
		if wrong(metrics, expr) == "" {
			t.Errorf("nothing is wrong with %s", expr)
		}
	}
}
