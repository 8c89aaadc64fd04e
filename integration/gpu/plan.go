// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// item is one thing to do: a row with an engine, or the timings.
type item struct {
	row    row
	engine string
	// timing stands for all timings, and has no row.
	timing bool
}

// planFor makes a list of what is to be done from the words that name it, in
// their order: all, rows, timing, NAME or NAME:ENGINE. What was named before is
// not done again, so that "50 rounds,all" begins with the one that matters most.
func planFor(words, engines []string) ([]item, error) {
	var items []item
	add := func(next item) {
		same := func(i item) bool {
			return i.row.name == next.row.name && i.engine == next.engine && i.timing == next.timing
		}
		if !slices.ContainsFunc(items, same) {
			items = append(items, next)
		}
	}
	addRows := func(name string, engines []string) int {
		n := 0
		for _, engine := range engines {
			for _, r := range rows {
				if (name == "" || r.name == name) && r.runsWith(engine) {
					add(item{row: r, engine: engine})
					n++
				}
			}
		}
		return n
	}
	for _, word := range words {
		switch word {
		case "timing":
			add(item{timing: true})
		case "rows":
			addRows("", engines)
		case "all":
			addRows("", engines)
			add(item{timing: true})
		default:
			name, engine, one := strings.Cut(word, ":")
			wanted := engines
			if one {
				wanted = []string{engine}
			}
			if name == "" || addRows(name, wanted) == 0 {
				return nil, fmt.Errorf("there is no row %q with one of the engines %s; -list has all", name, strings.Join(wanted, ", "))
			}
		}
	}
	return items, nil
}

// list prints a plan.
func list(w io.Writer, items []item) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROW\tENGINE\tTAKES ABOUT\tAT MOST\tWHAT")
	var sum time.Duration
	for _, i := range items {
		if i.timing {
			fmt.Fprintln(table, "timing\t\t\t\twhat -sizes, -repetitions and -peers say")
			continue
		}
		sum += i.row.usual()
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", i.row.name, i.engine, i.row.usual(), i.row.limit(), i.row.what)
	}
	fmt.Fprintf(table, "all rows\t\t%s\t\t\n", sum)
	return table.Flush()
}
