"""Public fakes for tests of agents, servers and engines. Production code never imports this room."""
