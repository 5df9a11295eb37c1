package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// chunk is written at a time; a reader must take it within slowWrite to count as reading. A line of 26 kbit/s does.
	chunk     = 16 << 10
	slowWrite = 5 * time.Second
	// lastWrite is how long a reader that was too slow has to take what was begun, so that it learns why it is cut.
	lastWrite = 30 * time.Second
)

// A Handler serves a hub over HTTP.
type Handler struct {
	Hub *Hub
	// Leads tells whether this process leads, and who does where it does not; nil is a process that always leads.
	Leads func() (leads bool, holder string)
}

// ServeHTTP implements http.Handler.
func (s *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !expects(r.Host):
		http.Error(w, "this server is called localhost", http.StatusForbidden)
		return
	case r.URL.Path != StreamPath && r.URL.Path != SnapshotPath:
		http.Error(w, "there are "+StreamPath+" and "+SnapshotPath, http.StatusNotFound)
		return
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "everything here is only read", http.StatusMethodNotAllowed)
		return
	}
	if s.Leads != nil {
		if leads, holder := s.Leads(); !leads {
			http.Error(w, standby(holder), http.StatusServiceUnavailable)
			return
		}
	}
	reader, err := s.Hub.attach()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.Hub.detach(reader)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	to := &httpSink{w, http.NewResponseController(w)}
	if r.URL.Path == SnapshotPath {
		w.Header().Set("Content-Type", "application/json")
		_, _ = s.Hub.write(to, reader.next(s.Hub.clock())) // the reader is gone then
		return
	}
	w.Header().Set("Content-Type", ContentType)
	s.Hub.serve(r.Context(), to, reader)
}

func standby(holder string) string {
	if holder == "" {
		return "this replica does not lead, and nobody does yet"
	}
	return fmt.Sprintf("this replica does not lead: %s does", holder)
}

// expects tells whether a request was meant for this server. A web page whose name was made to point here ("DNS
// rebinding") sends that name; an address cannot be made to point elsewhere.
func expects(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	return strings.EqualFold(name, "localhost") || net.ParseIP(name) != nil
}

// A sink is where records are written.
type sink interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	Flush() error
}

type httpSink struct {
	http.ResponseWriter
	*http.ResponseController
}

// serve writes records until the reader goes, or falls behind, or the hub ends.
func (h *Hub) serve(ctx context.Context, to sink, r *reader) {
	tick := time.NewTicker(updateEvery)
	defer tick.Stop()
	for {
		if record := r.next(h.clock()); record != nil {
			inTime, err := h.write(to, record)
			switch {
			case err != nil || record.Kind == FellBehind:
				return
			case !inTime:
				why := fmt.Sprintf("nothing was read for %v", slowWrite)
				_, _ = h.write(to, r.record(FellBehind, h.clock(), Content{}, why)) // the last word, heard or not
				return
			}
		}
		if !h.wait(ctx, tick.C, r) {
			return
		}
		h.refresh()
	}
}

// wait returns when it is time for another record; false when there shall be none.
func (h *Hub) wait(ctx context.Context, tick <-chan time.Time, r *reader) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-h.ended:
			return false
		case <-tick:
			return true
		case <-r.urgent:
			if h.clock().Sub(r.sent) >= urgentEvery {
				return true
			}
			// Too soon after the last: the tick brings it.
		}
	}
}

// write writes one record as one line. inTime is false where the reader did not read for slowWrite.
func (h *Hub) write(to sink, record *Record) (inTime bool, err error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(record); err != nil {
		return false, fmt.Errorf("encoding a record: %w", err)
	}
	inTime = true
	for line.Len() > 0 {
		begun := h.clock()
		if err := to.SetWriteDeadline(begun.Add(lastWrite)); err != nil {
			return false, err
		}
		if _, err := to.Write(line.Next(chunk)); err != nil {
			return false, err
		}
		if err := to.Flush(); err != nil {
			return false, err
		}
		inTime = inTime && h.clock().Sub(begun) < slowWrite
	}
	return inTime, nil
}
