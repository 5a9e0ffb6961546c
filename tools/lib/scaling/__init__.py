"""What the cost model predicts, as a page: docs/scaling.md."""
