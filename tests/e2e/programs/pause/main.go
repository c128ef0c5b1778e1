// The process that holds a pod's namespaces: it waits, and reaps what loses its parent.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if reaped, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); reaped <= 0 {
				break
			}
		}
	}
}
