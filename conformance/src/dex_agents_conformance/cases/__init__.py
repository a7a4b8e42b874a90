"""The cases by group; `AdapterConformance` has them all."""
