// Stacks of Go: by its own tables, on stacks that grow.
//
//	goroutines SECONDS
//
// spends as much time in each of two functions, named leaf*: under twenty frames of recursion, and in a goroutine.
package main

import (
	"os"
	"strconv"
	"time"
)

// What is in a frame, so that each has one and keeps the frame pointer in it.
type room [64]byte

var sink uint64

//go:noinline
func fill(r *room, n uint64) { r[n%64]++ }

// Works for a time; the looks at the clock are rare.
func spin(d time.Duration, x uint64) uint64 {
	for start := time.Now(); time.Since(start) < d; {
		for i := 0; i < 400000; i++ {
			x = x*6364136223846793005 + 1
		}
	}
	return x
}

//go:noinline
func leafDeep(d time.Duration) uint64 {
	var r room
	fill(&r, 1)
	return spin(d, uint64(r[1]))
}

//go:noinline
func leafApart(d time.Duration) uint64 {
	var r room
	fill(&r, 1)
	return spin(d, uint64(r[1]))
}

//go:noinline
func recursive(depth int, d time.Duration) uint64 {
	var r room
	fill(&r, uint64(depth))
	if depth == 1 {
		return leafDeep(d) + uint64(r[1])
	}
	return recursive(depth-1, d) + uint64(r[1])
}

//go:noinline
func worker(d time.Duration, done chan uint64) { done <- leafApart(d) }

func main() {
	seconds := 1.0
	if len(os.Args) > 1 {
		seconds, _ = strconv.ParseFloat(os.Args[1], 64)
	}
	each := time.Duration(seconds / 2 * 1e9)
	sink += recursive(20, each)
	done := make(chan uint64)
	go worker(each, done)
	sink += <-done
}
