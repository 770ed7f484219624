package main

import (
	_ "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	_ "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	_ "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/rabbitmq/amqp091-go"
	_ "github.com/riverqueue/river"
	_ "github.com/riverqueue/river/riverdriver/riverpgxv5"
	_ "github.com/riverqueue/river/rivermigrate"
	_ "github.com/twmb/franz-go/pkg/kadm"
	_ "github.com/twmb/franz-go/pkg/kgo"
)
