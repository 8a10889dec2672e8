// RUN: cleave-opt --split-input-file --verify-diagnostics --cleave-verify %s | FileCheck %s

// Parts whose diagnostics are the expected ones count as fine, and those that compiled are printed.
// CHECK: func.func @fine
func.func @fine() { return }

// -----

// expected-error@+1 {{custom op 'unknown' is unknown}}
func.func @next_line() { unknown }

// -----

func.func @same_line() { unknown } // expected-error {{is unknown}}

// -----

func.func @line_before() { unknown }
// expected-error @-1 {{is unknown}}

// -----

func.func @above() { unknown }
// expected-error @above {{is unknown}}

// -----

// expected-note @below {{see existing symbol definition here}}
func.func private @f()
// expected-error @below {{redefinition of symbol named 'f'}}
func.func private @f()

// -----

// expected-error-re @+1 {{custom op '{{[a-z]+}}' is {{un|not }}known (tried 'func.}}
func.func @expression() { unknown }

// -----

// Errors of our own passes count too.
// expected-error @+1 {{unknown attribute 'cleave.fact'}}
func.func @ours() attributes {cleave.fact = []} { return }
