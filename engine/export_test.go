package engine

// Defaulted is a configuration with the defaults of what it does not set.
func Defaulted(c Config) Config { return c.withDefaults() }

// Valid checks a configuration that has its defaults.
func Valid(c Config) error { return c.validate() }

// Closing reports whether an engine admits nothing new.
func Closing(e *Engine) func() bool { return e.table.Closing }
