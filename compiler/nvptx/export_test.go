// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package nvptx

// Tests pause loops of a few rounds.
func init() { backEdgeRounds = 4 }
