// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package hetcuda

// Stepper is what HoldTogether drives.
type Stepper = stepper

// HoldSteppers is HoldTogether for what is no connection.
var HoldSteppers = holdTogether
