/* The one-file driver: CPython with its modules in its own read-only data.
 *
 * Started in a jail it has no file to read but the program itself, so every path the interpreter would search is
 * set to nothing here, and no variable of the environment can point it elsewhere.
 */
#include <Python.h>

extern const struct _frozen windrow_frozen[];

static int quit(PyStatus status) {
  if (PyStatus_IsExit(status)) return status.exitcode;
  Py_ExitStatusException(status);
}

#define TRY(call) do { PyStatus tried = (call); if (PyStatus_Exception(tried)) return quit(tried); } while (0)
#define EMPTY(field) TRY(PyConfig_SetString(&config, &config.field, L""))

static int configure(int argc, char **argv) {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);
  before.utf8_mode = 1;
  TRY(Py_PreInitialize(&before));

  PyImport_FrozenModules = windrow_frozen;
  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.module_search_paths_set = 1;
  config.use_frozen_modules = 1;
  config.site_import = 0;
  config.write_bytecode = 0;
  config.pathconfig_warnings = 0;
  config.parse_argv = 0;
  config.optimization_level = 2;
  /* A peer that hangs up is an error to handle, not a signal to die of. */
  config.install_signal_handlers = 1;
  EMPTY(home); EMPTY(prefix); EMPTY(exec_prefix); EMPTY(base_prefix); EMPTY(base_exec_prefix);
  EMPTY(executable); EMPTY(base_executable); EMPTY(stdlib_dir); EMPTY(platlibdir);
  TRY(PyConfig_SetBytesArgv(&config, argc, argv));
  TRY(Py_InitializeFromConfig(&config));
  PyConfig_Clear(&config);
  return 0;
}

int main(int argc, char **argv) {
  int refused = configure(argc, argv);
  if (refused) return refused;

#ifdef WINDROW_PROBE
  /* Built for one run: can everything that was frozen be imported here? */
  int missing = 0;
  for (const struct _frozen *each = windrow_frozen; each->name; each++)
    if (PyImport_ImportModule(each->name) == NULL) { fprintf(stderr, "%s: ", each->name); PyErr_Print(); missing++; }
  /* By now every class was made; a method left in the table was compiled from another text than the one used. */
  if (PyRun_SimpleString("import _dataclass_code as table\nif table.CODE: raise SystemError('unused methods')"))
    missing++;
  return missing != 0;
#endif

  PyObject *module = PyImport_ImportModule(WINDROW_ENTRY);
  PyObject *result = module ? PyObject_CallMethod(module, "main", NULL) : NULL;
  /* Tells of the error; ends the process with its code where the error is SystemExit. */
  if (result == NULL) { PyErr_Print(); return 1; }

  long code = PyLong_Check(result) ? PyLong_AsLong(result) : 0;
  Py_DECREF(result);
  Py_DECREF(module);
  return Py_FinalizeEx() < 0 ? 120 : (int)code;
}
