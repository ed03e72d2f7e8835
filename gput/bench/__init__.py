"""What a bench found, kept: definitions of figures, the file they are saved in, the machine's description, two files compared."""
