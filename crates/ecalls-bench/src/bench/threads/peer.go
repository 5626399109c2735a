// The workloads of `ecalls bench threads` in Go. Prints "row value" per line. With the arguments
// "http FILE" it is a web server, which prints its port and ends with its standard input.
//
// The sleeps are raw system calls, as a library's in C would be: time.Sleep would not block.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func compute(n uint64) uint64 {
	x := uint64(1)
	for i := uint64(0); i < n; i++ {
		x = x*6364136223846793005 + 1
	}
	return x
}

var sink uint64

func perUs() float64 {
	best := 1e18
	for i := 0; i < 5; i++ {
		start := time.Now()
		sink += compute(2000000)
		best = min(best, float64(time.Since(start).Nanoseconds()))
	}
	return 2000000 * 1000 / best
}

func sleep(us int64) {
	t := syscall.NsecToTimespec(us * 1000)
	syscall.Nanosleep(&t, nil)
}

func sum(from, to uint64) uint64 {
	if to-from == 1 {
		return from
	}
	middle := (from + to) / 2
	halves := make(chan uint64, 2)
	go func() { halves <- sum(from, middle) }()
	go func() { halves <- sum(middle, to) }()
	return <-halves + <-halves
}

func all(n int, body func()) {
	var group sync.WaitGroup
	for i := 0; i < n; i++ {
		group.Add(1)
		go func() { defer group.Done(); body() }()
	}
	group.Wait()
}

// Answers each request of a connection with the file.
func answer(connection net.Conn, file string) {
	defer connection.Close()
	lines := bufio.NewReader(connection)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		if len(line) > 2 {
			continue
		}
		page, err := os.ReadFile(file)
		if err != nil {
			return
		}
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(page))
		if _, err = connection.Write(append([]byte(head), page...)); err != nil {
			return
		}
	}
}

func serve(file string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go answer(connection, file)
	}
}

func main() {
	if os.Args[1] == "http" {
		runtime.GOMAXPROCS(1)
		serve(os.Args[2])
	}
	divisor, _ := strconv.Atoi(os.Args[1])
	processors, _ := strconv.Atoi(os.Args[2])
	runtime.GOMAXPROCS(processors)
	switches := 200000 / divisor
	start := time.Now()
	all(10, func() {
		for i := 0; i < switches; i++ {
			runtime.Gosched()
		}
	})
	fmt.Println("table3_yield", float64(time.Since(start).Nanoseconds())/float64(10*switches))
	for i := 0; i < 11; i++ {
		start = time.Now()
		sink += sum(0, 1000)
		row := "table3_sumtime"
		if i == 0 {
			row = "table3_sumtime_first"
		}
		fmt.Println(row, time.Since(start).Seconds()*1e3)
	}
	speed := perUs()
	for _, r := range []struct {
		row        string
		busy, idle int64
	}{{"rounds_100_200", 100, 200}, {"rounds_20_100", 20, 100}} {
		rounds := max(1000/divisor, 10)
		start = time.Now()
		all(8*processors, func() {
			x := uint64(0)
			for i := 0; i < rounds; i++ {
				x += compute(uint64(float64(r.busy) * speed))
				sleep(r.idle)
			}
			if x == 1 {
				fmt.Print()
			}
		})
		fmt.Println(r.row, float64(8*processors*rounds)/time.Since(start).Seconds())
	}
}
