// Says "ready", sleeps 10 ms again and again, computes 1 ms or, each fourth time, 3 ms, and prints at
// its end how late it was: p50 and p99, in us. Arguments: the time that does not count, and the time
// after that, in ms.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

var sink uint64

func compute(rounds int) {
	state := sink | 1
	for ; rounds > 0; rounds-- {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	sink = state
}

func monotonic() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func roundsPerMs() int {
	const rounds = 50000
	best := int64(1 << 62)
	for i := 0; i < 7; i++ {
		begin := monotonic()
		compute(rounds)
		best = min(best, monotonic()-begin)
	}
	return int(rounds * 1000000 / max(best, 1))
}

func ms(word string) int64 {
	number, _ := strconv.ParseInt(word, 10, 64)
	return number * 1000000
}

func main() {
	perMs := roundsPerMs()
	fmt.Println("ready")
	begin := monotonic() + ms(os.Args[1])
	end := begin + ms(os.Args[2])
	var late []int64
	for turn := 1; ; turn++ {
		due := monotonic() + 10000000
		time.Sleep(10 * time.Millisecond)
		now := monotonic()
		if now >= end {
			break
		}
		if now >= begin {
			late = append(late, now-due)
		}
		work := 1
		if turn%4 == 0 {
			work = 3
		}
		compute(perMs * work)
	}
	sort.Slice(late, func(a, b int) bool { return late[a] < late[b] })
	fmt.Println(late[len(late)*50/100]/1000, late[len(late)*99/100]/1000)
}
