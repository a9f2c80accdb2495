"""How to wait: clocks, deadlines, threads, tasks. The only room that sleeps, awaits or starts a thread."""
