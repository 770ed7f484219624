package runtimetest

// Play is Run without a bubble of its own, for tests that record what fails.
var Play = play
