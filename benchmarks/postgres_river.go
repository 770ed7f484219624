package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/leat-io/leat/benchmarks/harness"
)

// job is what a message is to River.
type job struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

func (job) Kind() string { return "bench" }

type jobWorker struct {
	river.WorkerDefaults[job]
	count  *count
	handle func(*message.Message) error
}

func (w *jobWorker) Work(_ context.Context, j *river.Job[job]) error {
	err := w.handle(&message.Message{UUID: j.Args.ID})
	w.count.add(1)
	return err
}

// riverQueue drains River's table with so many workers of one client.
func riverQueue(workers int, handle func(*message.Message) error) func(*harness.Meter, int) error {
	return func(m *harness.Meter, n int) error {
		return inDatabase(postgresBroker, func(url string) error {
			ctx := background()
			db, err := pgxpool.New(ctx, url)
			if err != nil {
				return err
			}
			defer db.Close()
			if err := errors.Join(fillRiver(ctx, db, twice*n), vacuum(ctx, url)); err != nil {
				return err
			}
			w := &jobWorker{handle: handle}
			all := river.NewWorkers()
			river.AddWorker(all, w)
			c, err := river.NewClient(riverpgxv5.New(db), &river.Config{
				Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: all,
				FetchCooldown: river.FetchCooldownMin, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return err
			}
			w.count = newCount(m, n, twice)
			if err := c.Start(ctx); err != nil {
				return err
			}
			<-w.count.reached
			err = c.Stop(ctx)
			w.count.settled()
			return err
		})
	}
}

func fillRiver(ctx context.Context, db *pgxpool.Pool, n int) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(db), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	c, err := river.NewClient(riverpgxv5.New(db), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	const batch = 1000
	for at := 0; at < n; at += batch {
		params := make([]river.InsertManyParams, 0, batch)
		for _, msg := range kibibytes(at, min(batch, n-at)) {
			params = append(params, river.InsertManyParams{Args: job{ID: msg.UUID, Body: string(msg.Payload)}})
		}
		if _, err := c.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}
