// Package comparison runs the same loads under several routing policies and compares their figures.
//
//	report, err := comparison.Run(ctx, comparison.Config{
//		Engines:  make([]sim.Engine, 8),
//		Cells:    cells,    // ModeCells or TraceCells
//		Policies: policies, // ParsePolicies
//		Seeds:    []uint64{1, 2, 3},
//		Finished: comparison.NewTable(os.Stdout, cells, policies).Print,
//	})
//
// The table has the rows of a cell as soon as its runs have ended. JSON and Report.SVG are the other forms.
//
// A cell is one load at one rate. Each cell runs once for each policy and seed, several at a time.
// All policies of a cell get the same requests: texts and lengths depend only on the seed.
//
// The simulation is that of package sim: the gateway's own code for its own policies, and formulas
// for those of other routers. docs/simulate.md states what it leaves out.
package comparison
