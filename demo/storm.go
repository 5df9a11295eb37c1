package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/rollcall-dev/rollcall/karpenter"
)

// pace is the time from one turn of the storm to the next, enough to see what one brought.
const pace = 4 * time.Second

// A storm has machines come and go, a few at a time, and the spot node be taken back and given again, until it is told to
// end. Its machines are Nodes in the API without a kubelet, which cost next to nothing; the spot node is a real one.
type storm struct {
	client kubernetes.Interface
	say    *narrator
}

// life is what a machine goes through, one step a turn; nil is a turn in which nothing happens to it. A new machine comes
// with each turn, so that this is also who is there at a time. It is over before the node lifecycle controller misses the
// kubelet, which takes 50 s.
var life = []func(*storm, context.Context, machine) error{
	(*storm).join, nil, (*storm).mirror, (*storm).fill, (*storm).interrupt, nil, nil, nil, nil, (*storm).end,
}

// The spot node is taken back and given again at these turns of each round.
const (
	roundTurns = 10
	takenAt    = 1
	givenAt    = 6
)

// rage takes one turn after the other until ctx ends, which is no error.
func (s *storm) rage(ctx context.Context) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for n := 0; ; n++ {
		if err := s.turn(ctx, n); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// turn has each machine that is there take its next step.
func (s *storm) turn(ctx context.Context, n int) error {
	switch n % roundTurns {
	case takenAt:
		s.say.step("%s is taken back: %s", spotNode, interruptionTaint)
		if err := setTaint(ctx, s.client, true); err != nil {
			return err
		}
	case givenAt:
		s.say.step("%s stays after all: the taint goes", spotNode)
		if err := setTaint(ctx, s.client, false); err != nil {
			return err
		}
	}
	for number := max(0, n-len(life)+1); number <= n; number++ {
		step := life[n-number]
		if step == nil {
			continue
		}
		if err := step(s, ctx, machine(number)); err != nil {
			return err
		}
	}
	return nil
}

// departures are the signals with which machines go, one after the other (karpenter/taints.go). Two have a deadline of
// 30 s, one of two minutes, cluster-autoscaler tells none, and Karpenter may still change its mind.
var departures = []string{
	"aws-node-termination-handler/spot-itn", karpenter.ToBeDeletedTaint, "cloud.google.com/impending-node-termination",
	karpv1.DisruptedTaintKey, "aks-node-termination-handler/preempt",
}

// interrupt has the machine's node go.
func (s *storm) interrupt(ctx context.Context, m machine) error {
	taint := corev1.Taint{Key: departures[int(m)%len(departures)], Effect: corev1.TaintEffectNoSchedule}
	if taint.Key == karpenter.ToBeDeletedTaint {
		taint.Value = strconv.FormatInt(time.Now().Unix(), 10)
	}
	s.say.step("%s goes: %s", m, taint.Key)
	if err := m.taint(ctx, s.client, taint); err != nil {
		return fmt.Errorf("tainting %s: %w", m, err)
	}
	return nil
}
