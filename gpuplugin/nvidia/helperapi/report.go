// SPDX-FileCopyrightText: The hetGPU authors
// SPDX-License-Identifier: Apache-2.0

package helperapi

import "github.com/hetgpu/containerd-shim-hetgpu/gpuplugin"

// Report is what "hetgpu-gpu inventory" prints as JSON.
type Report struct {
	gpuplugin.Inventory

	// Symbols are the functions of the driver's library.
	Symbols []SymbolReport `json:"symbols"`
	// Errors say what could not be found out or doesn't work, one each.
	Errors []string `json:"errors,omitempty"`
}

// SymbolReport is one function of the driver's library.
type SymbolReport struct {
	// Name is the function's.
	Name string `json:"name"`
	// Required says that nothing can be checkpointed without it.
	Required bool `json:"required"`
	// Since is the driver that brought it ("570").
	Since string `json:"since"`
	// Found says that this driver has it.
	Found bool `json:"found"`
}

// NewReport turns the protocol's answer into a report.
func NewReport(r *InventoryResponse) Report {
	report := Report{Inventory: ToInventory(r), Symbols: []SymbolReport{}}
	for _, s := range r.GetSymbols() {
		report.Symbols = append(report.Symbols, SymbolReport{
			Name: s.GetName(), Required: s.GetRequired(), Since: s.GetSince(), Found: s.GetFound(),
		})
	}
	if f := r.GetFailure(); f != nil {
		report.Errors = append(report.Errors, FromFailure(f).Error())
	}
	return report
}
