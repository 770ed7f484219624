// Package amqptype keeps header values of AMQP that are not strings: as text
// for metadata, and so that they come back with their types.
package amqptype
