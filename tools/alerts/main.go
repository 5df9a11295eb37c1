// The alerts command evaluates the alerts of a rules file with Prometheus' own engine against what a program really served
// on /metrics: each SCRAPE is one file in the text format, taken a minute after the one before. It prints, as JSON, what each
// alert's expression yields at the time of the last one, before any "for", and what it compares: the left side of the
// comparison, which says whether the metrics are there at all.
//
//	alerts RULES SCRAPE...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// interval is the time between two scrapes.
const interval = time.Minute

// A verdict is what is to be said of one alert.
type verdict struct {
	Alert string
	// Active are the labels of what the expression yields: of each there would be an alert.
	Active []map[string]string
	// Compared is how many values the left side of the comparison has.
	Compared int
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "alerts: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: alerts RULES SCRAPE...")
	}
	language := parser.NewParser(parser.Options{})
	rules, errs := rulefmt.ParseFile(args[0], false, model.UTF8Validation, language, slog.Default())
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	history := newHistory()
	last := time.Unix(0, 0)
	for i, file := range args[1:] {
		last = time.Unix(0, 0).Add(time.Duration(i) * interval)
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a scrape: %w", err)
		}
		if err := history.add(text, last); err != nil {
			return fmt.Errorf("reading the scrape %s: %w", file, err)
		}
	}
	asker := asker{language: language, history: history, at: last, engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableNegativeOffset: true, Parser: language,
	})}
	var verdicts []verdict
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			v, err := asker.judge(ctx, rule)
			if err != nil {
				return fmt.Errorf("evaluating %s: %w", rule.Alert, err)
			}
			verdicts = append(verdicts, v)
		}
	}
	return json.NewEncoder(out).Encode(verdicts)
}

// asker evaluates expressions at one time.
type asker struct {
	language parser.Parser
	history  *history
	engine   *promql.Engine
	at       time.Time
}

func (a asker) judge(ctx context.Context, rule rulefmt.Rule) (verdict, error) {
	v := verdict{Alert: rule.Alert, Active: []map[string]string{}}
	active, err := a.ask(ctx, rule.Expr)
	if err != nil {
		return v, err
	}
	for _, sample := range active {
		v.Active = append(v.Active, sample.Metric.Map())
	}
	expression, err := a.language.ParseExpr(rule.Expr)
	if err != nil {
		return v, err
	}
	compared, err := a.ask(ctx, leftSide(expression).String())
	v.Compared = len(compared)
	return v, err
}

func (a asker) ask(ctx context.Context, expression string) (promql.Vector, error) {
	query, err := a.engine.NewInstantQuery(ctx, a.history, nil, expression, a.at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	return query.Exec(ctx).Vector()
}

// leftSide is what the first comparison of an expression compares; the expression itself where there is none.
func leftSide(expression parser.Expr) parser.Expr {
	switch e := expression.(type) {
	case *parser.ParenExpr:
		return leftSide(e.Expr)
	case *parser.AggregateExpr:
		return leftSide(e.Expr)
	case *parser.BinaryExpr:
		if e.Op.IsComparisonOperator() {
			return e.LHS
		}
		return leftSide(e.LHS)
	}
	return expression
}
