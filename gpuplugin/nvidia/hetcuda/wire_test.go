// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

// FuzzPackets reads anything as each kind of packet.
func FuzzPackets(f *testing.F) {
	hello := append(appendRequest(nil, opHello, 0, 0), make([]byte, textLen+helloLen)...)
	f.Add(hello)
	f.Add(appendChunk(appendChunk(nil, Chunk{ID: 1, Size: 4096}), Chunk{ID: 2, Address: 1 << 40, Size: 1 << 21}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if r, rest, err := parseReply(packet, opHello); err == nil {
			if len(r.text) > 4*textLen || !utf8.ValidString(r.text) {
				t.Errorf("text %q", r.text)
			}
			if h, err := parseHello(rest); err == nil && (h.State > Parked || h.Chunks > MaxChunks) {
				t.Errorf("hello %+v", h)
			}
		}
		if chunks, err := parseChunks(packet); err == nil {
			var again []byte
			for _, c := range chunks {
				again = appendChunk(again, c)
			}
			if len(again) != len(packet) || len(chunks) > batchSize {
				t.Errorf("%d chunks, %d bytes of %d", len(chunks), len(again), len(packet))
			}
			for i := range chunks {
				// All but the reserved word.
				if !bytes.Equal(again[i*chunkLen:][:chunkLen-4], packet[i*chunkLen:][:chunkLen-4]) {
					t.Errorf("chunk %d is not the same again", i)
				}
			}
			_ = checkChunks(chunks)
		}
	})
}
