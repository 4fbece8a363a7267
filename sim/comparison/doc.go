// Package comparison runs the same loads under several routing policies and shows their figures
// beside each other.
//
//	report, err := comparison.Run(ctx, comparison.Config{
//		Engines:  make([]sim.Engine, 8),
//		Cells:    cells,    // ModeCells or TraceCells
//		Policies: policies, // ParsePolicy
//		Seeds:    []uint64{1, 2, 3},
//	})
//	report.Print(os.Stdout) // a table; MarshalJSON and SVG are the other forms
//
// A cell is one load at one rate. Each cell runs once for each policy and seed, several at a time.
// All policies of a cell get the same requests: text and lengths depend on the seed alone.
//
// The simulation is that of package sim: the gateway's own code for its own policies, and formulas
// for those of other routers. docs/simulate.md states what it leaves out.
package comparison
