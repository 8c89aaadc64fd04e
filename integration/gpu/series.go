// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// series is what is timed: a size, where the snapshot goes, how often, and in
// how many of the repetitions beside the driver engine and the hand, which take
// ten times as long as the split engine.
type series struct {
	mib                int
	disk               bool
	repetitions, peers int
}

// turn is one repetition of a series.
type turn struct {
	series

	// peers is whether the driver engine and the hand take their turn, too.
	peers bool
}

// parseSeries reads three lists with a word for each series: sizes in MiB, with
// ":disk" behind those whose snapshots go to the disk, and two of numbers.
func parseSeries(sizes, repetitions, peers string) ([]series, error) {
	words := strings.Split(sizes, ",")
	counts, err := numbers(repetitions, 1)
	if err != nil {
		return nil, fmt.Errorf("-repetitions: %w", err)
	}
	beside, err := numbers(peers, 0)
	if err != nil {
		return nil, fmt.Errorf("-peers: %w", err)
	}
	if len(counts) != len(words) || len(beside) != len(words) {
		return nil, errors.New("-sizes, -repetitions and -peers need as many numbers each")
	}
	all := make([]series, len(words))
	for i, word := range words {
		word, disk := strings.CutSuffix(word, ":disk")
		size, err := numbers(word, 1)
		if err != nil {
			return nil, fmt.Errorf("-sizes: %w", err)
		}
		all[i] = series{mib: size[0], disk: disk, repetitions: counts[i], peers: min(beside[i], counts[i])}
	}
	return all, nil
}

func numbers(list string, least int) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is no list of numbers from %d", list, least)
		}
		all = append(all, n)
	}
	return all, nil
}

// largest is the largest size, in MiB.
func largest(all []series) int {
	return slices.MaxFunc(all, func(a, b series) int { return a.mib - b.mib }).mib
}

// schedule orders the repetitions: first half of each series (at least one),
// then what is left, the large ones first. Peers come in the first ones.
func schedule(all []series) []turn {
	var first, rest []turn
	for _, one := range all {
		for i := range one.repetitions {
			next := turn{series: one, peers: i < one.peers}
			if i < (one.repetitions+1)/2 {
				first = append(first, next)
			} else {
				rest = append(rest, next)
			}
		}
	}
	slices.SortStableFunc(rest, func(a, b turn) int { return b.mib - a.mib })
	return append(first, rest...)
}
