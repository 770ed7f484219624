// Package worker makes a whole process out of a YAML file and Go handlers.
//
// It has two levels. [Main] owns the process: commands, flags, signals and
// exit codes. [New] and [Worker.Run] are for a service that has a main of its
// own. Below both is package runtime, which knows neither file nor process.
//
//	func main() {
//		worker.Main(builtin.All(), worker.Handle("charge", handlers.JSON(charge)))
//	}
//
// The package links no broker: what a file can name comes in by a [Table].
package worker
