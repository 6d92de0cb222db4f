"""Pictures of a flow: its graph as a page or as Mermaid text, with what happened in one of its runs."""
