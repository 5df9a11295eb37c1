package livecluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// A Write is a write request that the API server has answered, as its audit log has it.
type Write struct {
	// What is "verb resource[/subresource]".
	What, Namespace, Name string
	Code                  int // the HTTP status of the answer
}

// Audited returns the write requests that the API server has answered so far for clients whose user agent begins with
// userAgent, in the order of the answers.
func (c *Cluster) Audited(userAgent string) ([]Write, error) {
	file, err := os.Open(c.auditLog)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	var writes []Write
	decoder := json.NewDecoder(bufio.NewReader(file))
	for {
		var event struct {
			Stage, Verb, UserAgent string
			ObjectRef              struct{ Resource, Subresource, Namespace, Name string }
			ResponseStatus         struct{ Code int }
		}
		if err := decoder.Decode(&event); err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return writes, nil // the last line may be half written
		} else if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if event.Stage != "ResponseComplete" || !strings.HasPrefix(event.UserAgent, userAgent) {
			continue
		}
		o := event.ObjectRef
		writes = append(writes, Write{
			What:      strings.TrimSuffix(event.Verb+" "+o.Resource+"/"+o.Subresource, "/"),
			Namespace: o.Namespace, Name: o.Name, Code: event.ResponseStatus.Code,
		})
	}
}

// Writes counts what Audited returns, by what was asked for.
func (c *Cluster) Writes(userAgent string) (map[string]int, error) {
	audited, err := c.Audited(userAgent)
	writes := map[string]int{}
	for _, w := range audited {
		writes[w.What]++
	}
	return writes, err
}
