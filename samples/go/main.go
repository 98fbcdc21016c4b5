// Produces records over TLS with franz-go, and fetches them again.
//
// Arguments: broker, certificate, key log to append to, client ID, topic, number of records, and whether to resume
// sessions of TLS 1.2 (Go writes no line for those). Prints what was produced, a line of JSON each.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	broker, certificate, keys, client, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	count, err := strconv.Atoi(os.Args[6])
	check(err)
	pem, err := os.ReadFile(certificate)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	keyLog, err := os.OpenFile(keys, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err)
	settings := &tls.Config{RootCAs: roots, KeyLogWriter: keyLog, MinVersion: tls.VersionTLS12}
	if len(os.Args) > 7 && os.Args[7] == "resume" {
		settings.MaxVersion = tls.VersionTLS12
		settings.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(broker),
		kgo.ClientID(client),
		kgo.DialTLSConfig(settings),
		kgo.DisableIdempotentWrite(),
		kgo.RequiredAcks(kgo.LeaderAck()),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	defer producer.Close()
	for number := range count {
		record := &kgo.Record{Topic: topic, Key: []byte(fmt.Sprint("go-", number)), Value: []byte("from Go")}
		check(producer.ProduceSync(ctx, record).FirstErr())
		check(json.NewEncoder(os.Stdout).Encode(map[string]any{
			"client_id": client, "topic": topic, "partition": record.Partition, "offset": record.Offset,
			"key": string(record.Key), "value": string(record.Value),
		}))
	}
	for fetched := 0; fetched < count; {
		fetches := producer.PollFetches(ctx)
		check(fetches.Err0())
		fetched += fetches.NumRecords()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
