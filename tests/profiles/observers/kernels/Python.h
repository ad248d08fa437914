/* What the kernels use of Python's limited API, to compile them where there are no headers of Python for a platform. */
#ifndef Py_PYTHON_H
#define Py_PYTHON_H
#include <stddef.h>
#include <stdint.h>

typedef int64_t Py_ssize_t;
#define PY_SSIZE_T_MAX INT64_MAX
#define PyMODINIT_FUNC PyObject *

typedef struct PyObject PyObject;
typedef struct PyThreadState PyThreadState;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct {
    const char *name;
    PyCFunction function;
    int flags;
    const char *doc;
} PyMethodDef;
typedef struct {
    void *base[5];
} PyModuleDef_Base;
typedef struct PyModuleDef {
    PyModuleDef_Base base;
    const char *name, *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;

#define PyModuleDef_HEAD_INIT {{NULL}}
#define METH_VARARGS 1
#define METH_NOARGS 4
#define PyBUF_C_CONTIGUOUS 0x38
#define PyBUF_FORMAT 4

extern PyObject *PyExc_TypeError, *PyExc_ValueError, Py_NoneStruct;
#define Py_RETURN_NONE return &Py_NoneStruct
extern struct PyTypeObject {
    int unused;
} PyList_Type;
void Py_DECREF(PyObject *), Py_XDECREF(PyObject *), PyBuffer_Release(Py_buffer *), PyMem_Free(void *);
void PyErr_SetString(PyObject *, const char *), PyEval_RestoreThread(PyThreadState *), *PyMem_Malloc(size_t);
int PyArg_ParseTuple(PyObject *, const char *, ...), PyTuple_Check(PyObject *), PyList_Append(PyObject *, PyObject *);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int), PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
Py_ssize_t PyList_Size(PyObject *);
PyObject *PyList_GetItem(PyObject *, Py_ssize_t), *PyList_New(Py_ssize_t), *PyTuple_New(Py_ssize_t);
PyObject *PyUnicode_FromString(const char *), *Py_BuildValue(const char *, ...), *PyErr_NoMemory(void);
PyObject *PyModule_Create(PyModuleDef *);
PyThreadState *PyEval_SaveThread(void);
#endif
