#define INFINITY ((float)(1e308 * 10))
double frexp(double, int *), ldexp(double, int), rint(double);
float rintf(float);
