// Package location reads the URL of a deployment, in the forms that this and other clients have.
// A form is accepted if its meaning is certain; otherwise the error names what to write.
//
//	Parse     one URL                                               location
//	scheme    what its beginning says: product, topology, TLS       scheme
//	Settings  what its query says, under any client's name          settings
//	foreign   what settings of other clients mean                   foreign
//
// It dials nobody and knows no defaults but ports. No password is in an error.
package location
