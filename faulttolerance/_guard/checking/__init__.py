"""What is wrong with definitions, and what is doubtful: told when decorating, at the first call, and by ``check``."""
