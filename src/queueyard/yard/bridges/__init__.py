"""Where systems meet that know nothing of each other. Each bridge is off until somebody asks for it (docs/adr/0050)."""
